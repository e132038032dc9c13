"""The server's step: its sign first."""

import pytest
import torch
import torch.nn.functional as F
from test_ghn import make, request
from torch import Tensor, nn

import zoo
from ghn_fl import GHN, Change, GHNConfig, Request, UpdateConfig, update
from ghn_fl.errors import GHNError
from ghn_fl.hypernet.update import gradient
from ghn_fl.optim import AdamState
