"""One thread, so that a test is the same on every machine; no deadlines, machines are shared."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("flatfed", deadline=None)
settings.load_profile("flatfed")
