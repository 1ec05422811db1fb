-- Writes what holders say about their work, each if the task still has a lease of this epoch that nobody ends right now.
-- A renewal locks leases in the same way, so the note is there before the lease can end. Returns the numbers and epochs of what was
-- written.
-- $1 to $4, of each note: number, epoch, instant, text. Each lease once.
INSERT INTO sm.note (no, epoch, at, text)
SELECT given.no, given.epoch, given.at, given.text
FROM (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) given (no, epoch, at, text) ORDER BY no
) given
CROSS JOIN LATERAL (
  SELECT FROM sm.lease WHERE lease.no = given.no AND lease.epoch = given.epoch FOR KEY SHARE SKIP LOCKED
) lease
ON CONFLICT (no) DO UPDATE SET epoch = excluded.epoch, at = excluded.at, text = excluded.text
RETURNING no, epoch
