"""What the SDK notes of a task, to overwrite it when the program runs again."""

import os


class SessionCache:
    SESSION_CACHE_FOLDER = "~/.clearml"

    @classmethod
    def store(cls, task_id):
        try:
            folder = os.path.expanduser(cls.SESSION_CACHE_FOLDER)
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, ".session.json"), "w") as file:
                file.write(task_id)
        except OSError:
            pass
