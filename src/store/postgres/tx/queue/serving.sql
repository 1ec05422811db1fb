-- Returns the queues that holders said they serve.
SELECT holder, queues, told_at, lease FROM sm.serving
