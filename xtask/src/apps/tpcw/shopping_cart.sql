\set cart random(1, 1000)
\set i random(1, :items)
BEGIN;
UPDATE shopping_cart SET sc_time = now() WHERE sc_id = :cart;
INSERT INTO shopping_cart_line VALUES (:cart, :i, 1);
SELECT i_id, i_title, i_cost, scl_quantity FROM shopping_cart_line JOIN item ON i_id = scl_i_id
  WHERE scl_sc_id = :cart;
COMMIT;
