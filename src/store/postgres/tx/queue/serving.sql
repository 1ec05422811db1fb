-- What holders told about the queues that they serve.
SELECT holder, queues, told_at, lease FROM sm.serving
