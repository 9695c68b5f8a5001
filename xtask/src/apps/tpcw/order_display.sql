\set c random(1, :customers)
SELECT * FROM orders JOIN cc_xacts ON cx_o_id = o_id JOIN order_line ON ol_o_id = o_id JOIN item ON i_id = ol_i_id
  WHERE o_id = (SELECT max(o_id) FROM orders WHERE o_c_id = :c);
