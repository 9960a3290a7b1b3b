class FileSet:
    def __init__(self, file_globs):
        self.file_globs = [file_globs] if isinstance(file_globs, str) else list(file_globs)
