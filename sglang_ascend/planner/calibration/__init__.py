"""What the reference device is made of on the machine that this runs on, and what it will serve.

The only part of the planner that measures anything: kernels in a process of their own
(``kernels``), the host by serving small models of random weights (``probes``). ``prediction`` puts
both under the planner's layer graph.
"""
