-- $1 where the caller's last look ended. No lease ends before this instant; beats may let the first ones last
-- longer.
SELECT min(expires_at) FROM sm.lease WHERE expires_at >= $1::bigint
