\set c random(1, :customers)
\set cart random(1, 1000)
SELECT * FROM customer JOIN address ON addr_id = c_addr_id JOIN country ON co_id = addr_co_id WHERE c_id = :c;
UPDATE customer SET c_login = now() WHERE c_id = :c;
SELECT i_id, i_title, i_cost, scl_quantity FROM shopping_cart_line JOIN item ON i_id = scl_i_id
  WHERE scl_sc_id = :cart;
