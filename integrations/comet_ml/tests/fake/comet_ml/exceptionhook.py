def _create_exception_hook(old_exception_hook):
    def comet_sdk_exception_hook(exception_type, exception_value, traceback):
        from comet_ml import get_global_experiment

        if (experiment := get_global_experiment()) is not None:
            experiment._report_experiment_error(f"an error: {exception_value}", has_crashed=True)
        return old_exception_hook(exception_type, exception_value, traceback)

    return comet_sdk_exception_hook
