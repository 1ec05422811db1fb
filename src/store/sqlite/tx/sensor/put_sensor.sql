-- Registers a sensor, replacing the earlier registration of its task.
REPLACE INTO sm_sensor (
  no, fingerprint, epoch, attempt, generation, interval, timeout, on_landed, on_missed, registered_at,
  times_out_at, state, changed, kind, context, execution, poke, max_interval, holder
)
VALUES (?1, ?2, ?3, ?4, ?17, ?5, ?6, ?7, ?8, ?9, ?10, 0, ?11, ?12, ?13, ?14, ?15, ?16, ?18)
