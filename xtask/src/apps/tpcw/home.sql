\set c random(1, :customers)
\set i random(1, :items)
SELECT c_fname, c_lname FROM customer WHERE c_id = :c;
SELECT i_id, i_thumbnail FROM item WHERE i_id = ANY (SELECT unnest(i_related) FROM item WHERE i_id = :i);
