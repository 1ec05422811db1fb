-- Returns the queues that holders said they serve.
SELECT holder, queues, announced_at, lease FROM sm.serving
