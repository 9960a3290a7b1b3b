"""The commands, a module each; what they say of themselves is in `trackside_command.COMMANDS` as well."""
