"""The code that runs inside a worker: a bare interpreter that knows neither torch nor the trainer."""
