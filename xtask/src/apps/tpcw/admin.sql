\set i random(1, :items)
BEGIN;
SELECT * FROM item JOIN author ON a_id = i_a_id WHERE i_id = :i;
UPDATE item SET i_cost = i_cost + 0.01, i_pub_date = now() WHERE i_id = :i;
COMMIT;
