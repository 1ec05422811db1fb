INSERT INTO sm.beat (no, epoch, expires_at) SELECT no, epoch, $3::bigint FROM unnest($1::bigint[], $2::bigint[]) given (no, epoch)
