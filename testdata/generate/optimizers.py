"""Prints the goldens of examples/trainer: rates, norms, parameters and averages.

The gradients are those of the tests: 0.5 * (i + 1) * (-1 if update % 3 == 0 else
1 + update) for element i.
"""

import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

UPDATES = 20


def gradient(i, update):
  return 0.5 * (i + 1) * (-1 if update % 3 == 0 else 1 + update)


def show(name, values):
  print(f'{name}: {{' + ', '.join(f'{v:.9g}' for v in values) + '}')


def rates(name, make, steps):
  """Prints the rates of `steps` steps with a learning rate of 1."""
  optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1)
  scheduler = make(optimizer)
  got = []
  for _ in range(steps):
    got.append(optimizer.param_groups[0]['lr'])
    optimizer.step()
    scheduler.step()
  show(name, got)


def warm(optimizer, warmup, then):
  # The rate is 1 / warmup of the full rate in step 1, and full in step warmup.
  rising = lr_scheduler.LinearLR(optimizer, 1 / warmup, total_iters=warmup - 1)
  return lr_scheduler.SequentialLR(optimizer, [rising, then], [warmup])


rates(
    'cosine',
    lambda o: warm(o, 4, lr_scheduler.CosineAnnealingLR(o, 8, eta_min=0.1)), 12)
rates('decay', lambda o: lr_scheduler.StepLR(o, 3, gamma=0.5), 10)
rates('warm decay', lambda o: warm(o, 2, lr_scheduler.StepLR(o, 3, gamma=0.5)),
      10)


def parameters():
  return (torch.tensor([1., 2., 3.], requires_grad=True),
          torch.tensor([4.], requires_grad=True))


def set_gradients(first, second, update):
  first.grad = torch.tensor([gradient(i, update) for i in range(3)])
  second.grad = torch.tensor([gradient(3, update)])


def train(name, groups, **options):
  first, second = parameters()
  optimizer = torch.optim.AdamW(groups(first, second), **options)
  model = torch.nn.ParameterList([first, second])
  average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
  for update in range(UPDATES):
    set_gradients(first, second, update)
    optimizer.step()
    average.update_parameters(model)
  show(name, [*first.tolist(), *second.tolist()])
  show(name + ', averages',
       [v for p in average.module.parameters() for v in p.tolist()])


train('adamw', lambda first, second: [first, second], lr=0.01, betas=(0.8, 0.95),
      weight_decay=0.1)
train('adamw with groups',
      lambda first, second: [{'params': [first]},
                             {'params': [second], 'lr': 0.005,
                              'weight_decay': 0.}],
      lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)

for most in (1., 4., 100.):
  first, second = parameters()
  set_gradients(first, second, 1)
  norm = torch.nn.utils.clip_grad_norm_([first, second], most)
  show(f'norm, gradients clipped to {most}',
       [norm.item(), *first.grad.tolist(), *second.grad.tolist()])
print('PyTorch', torch.__version__)
