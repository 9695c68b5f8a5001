\set i random(1, :items)
SELECT * FROM item JOIN author ON a_id = i_a_id WHERE i_id = :i;
