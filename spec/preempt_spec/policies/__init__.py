"""Where engines may differ: knobs, what they mean, and the profiles of named engines.

`policy` has the knobs. What they mean is said in rooms, small pure functions over the view: whom a step looks at
(`visits`), what they need (`blocks`, `pressure`), who goes when it is not there (`victims`, `displacing`), where it
waits (`queues`) and how it comes in (`admission`), what is owed meanwhile (`outputs`), and how long nothing may happen
(`progress`). `profiles` gives a value and a source per knob for each engine.
"""
