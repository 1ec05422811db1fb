SELECT digest, slots, pool, limits FROM sm.lane WHERE digest = ANY ($1::uuid[])
