-- Writes holders' notes about their work, each if the task still has a lease of this epoch that no one is
-- ending. It locks leases as a renewal does, so the note is stored before the lease can end. Returns the
-- numbers and epochs of the written notes.
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
