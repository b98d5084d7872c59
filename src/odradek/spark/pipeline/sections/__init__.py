"""The sections of a pipeline's file, each read by a module of its own.

``names``    what steps and sinks can refer to
``source``   the source: topics, where it starts, formats
``steps``    tables and steps
``results``  expectations, sinks and dead letters
``running``  trigger and Spark
"""
