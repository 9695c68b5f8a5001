\set i random(1, :items)
SELECT i_id, i_thumbnail FROM item WHERE i_id = ANY (SELECT unnest(i_related) FROM item WHERE i_id = :i);
