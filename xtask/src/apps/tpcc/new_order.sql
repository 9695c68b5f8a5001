\set w random(1, :warehouses)
\set d random(1, 10)
\set c 1 + ((random(0, 1023) | random(1, 3000)) + 123) % 3000
\set lines random(5, 15)
\set mistake random(1, 100)
BEGIN;
SELECT new_order(:w, :d, :c, :lines, :warehouses);
\if :mistake = 1
ROLLBACK;
\else
COMMIT;
\endif
