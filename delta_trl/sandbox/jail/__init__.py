"""
The code that runs inside a worker process of the sandbox. It confines itself first, then runs programs, and imports
neither torch nor the trainer.
"""
