-- TPC-W's bookshop without its pictures and web pages. psql variables: items, customers.

CREATE TABLE country (co_id int PRIMARY KEY, co_name text);
CREATE TABLE author (a_id int, a_fname text, a_lname text, a_bio text);
CREATE TABLE item (i_id int, i_title text, i_a_id int, i_pub_date date, i_subject int, i_desc text, i_related int[],
  i_stock int, i_cost numeric(12,2), i_thumbnail text) WITH (fillfactor = 90);
CREATE TABLE customer (c_id int, c_uname text, c_fname text, c_lname text, c_addr_id int, c_phone text, c_email text,
  c_since date, c_login timestamptz, c_discount numeric(4,2), c_balance numeric(12,2), c_data text)
  WITH (fillfactor = 90);
CREATE TABLE address (addr_id int, addr_street text, addr_city text, addr_zip text, addr_co_id int);
CREATE SEQUENCE order_number;
CREATE TABLE orders (o_id int, o_c_id int, o_date timestamptz, o_total numeric(12,2), o_status text);
CREATE TABLE order_line (ol_o_id int, ol_number int, ol_i_id int, ol_quantity int, ol_comments text);
CREATE TABLE cc_xacts (cx_o_id int, cx_type text, cx_number text, cx_amount numeric(12,2), cx_date timestamptz);
CREATE TABLE shopping_cart (sc_id int, sc_time timestamptz);
CREATE TABLE shopping_cart_line (scl_sc_id int, scl_i_id int, scl_quantity int);

CREATE FUNCTION text_of(n int, length int) RETURNS text IMMUTABLE LANGUAGE sql AS $$
  SELECT left(repeat(md5(n::text), length / 32 + 1), length) $$;

INSERT INTO country SELECT n, 'country' || n FROM generate_series(1, 92) n;
INSERT INTO author SELECT n, text_of(n, 10), md5(n::text), text_of(n, 250)
  FROM generate_series(1, :items / 4) n;
INSERT INTO item SELECT n, md5(n::text), n % (:items / 4) + 1, date '1990-01-01' + n * 7919 % 10000, n % 24,
  text_of(n, 300), ARRAY[n % :items + 1, n * 7 % :items + 1, n * 11 % :items + 1, n * 13 % :items + 1,
  n * 17 % :items + 1], 10 + n % 21, 1 + n % 9999 / 100.0, 'img/' || n FROM generate_series(1, :items) n;
INSERT INTO address SELECT n, text_of(n, 40), text_of(n, 20), n::text, n % 92 + 1
  FROM generate_series(1, :customers * 2) n;
INSERT INTO customer SELECT n, 'u' || n, text_of(n, 10), md5(n::text), n * 2, '0123456789', n || '@example.org',
  '2026-01-01', now(), n % 51 / 100.0, 0, text_of(n, 300) FROM generate_series(1, :customers) n;
INSERT INTO orders SELECT n, (n::bigint * 7919 % :customers + 1)::int, now() - n * interval '1 second', 30, 'SHIPPED'
  FROM generate_series(1, :customers * 9 / 10) n;
INSERT INTO order_line SELECT o, n, ((o::bigint * 31 + n * 7919) % :items + 1)::int, 1, text_of(o, 40)
  FROM generate_series(1, :customers * 9 / 10) o, generate_series(1, 3) n;
INSERT INTO cc_xacts SELECT n, 'VISA', text_of(n, 16), 30, now() FROM generate_series(1, :customers * 9 / 10) n;
INSERT INTO shopping_cart SELECT n, now() FROM generate_series(1, 1000) n;
SELECT setval('order_number', :customers * 9 / 10);

ALTER TABLE author ADD PRIMARY KEY (a_id);
CREATE INDEX ON author (a_lname text_pattern_ops);
ALTER TABLE item ADD PRIMARY KEY (i_id);
CREATE INDEX ON item (i_subject, i_pub_date);
CREATE INDEX ON item (i_subject, i_id);
CREATE INDEX ON item (i_title text_pattern_ops);
CREATE INDEX ON item (i_a_id);
ALTER TABLE address ADD PRIMARY KEY (addr_id);
ALTER TABLE customer ADD PRIMARY KEY (c_id);
CREATE INDEX ON customer (c_uname);
ALTER TABLE orders ADD PRIMARY KEY (o_id);
CREATE INDEX ON orders (o_c_id);
ALTER TABLE order_line ADD PRIMARY KEY (ol_o_id, ol_number);
ALTER TABLE cc_xacts ADD PRIMARY KEY (cx_o_id);
ALTER TABLE shopping_cart ADD PRIMARY KEY (sc_id);
CREATE INDEX ON shopping_cart_line (scl_sc_id);

-- The most sold of a subject among the last 3333 orders (TPC-W 2.7).
CREATE FUNCTION best_sellers(subject int) RETURNS bigint LANGUAGE sql AS $$
  WITH sold AS (
    SELECT i_id, sum(ol_quantity) AS quantity FROM order_line JOIN item ON i_id = ol_i_id
    WHERE ol_o_id > (SELECT max(o_id) - 3333 FROM orders) AND i_subject = subject
    GROUP BY i_id ORDER BY quantity DESC LIMIT 50)
  SELECT count(i_title || a_lname) FROM sold JOIN item USING (i_id) JOIN author ON a_id = i_a_id $$;

-- A cart becomes an order (TPC-W 2.13). Without a line in it, a random item is bought, as the specification has it.
CREATE FUNCTION buy(cart int, buyer int, fallback int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  the_order int := nextval('order_number'); line record; n int := 0; total numeric := 0;
BEGIN
  PERFORM 1 FROM shopping_cart WHERE sc_id = cart FOR UPDATE;
  FOR line IN
    SELECT i_id, i_cost, q FROM (SELECT scl_i_id AS i, sum(scl_quantity) AS q FROM shopping_cart_line
      WHERE scl_sc_id = cart GROUP BY 1 UNION ALL SELECT fallback, 1 WHERE NOT EXISTS
      (SELECT 1 FROM shopping_cart_line WHERE scl_sc_id = cart)) wanted JOIN item ON i_id = i ORDER BY i_id
  LOOP
    n := n + 1;
    INSERT INTO order_line VALUES (the_order, n, line.i_id, line.q, 'as soon as possible');
    UPDATE item SET i_stock = CASE WHEN i_stock < 20 THEN i_stock + 21 ELSE i_stock - 1 END WHERE i_id = line.i_id;
    total := total + line.i_cost * line.q;
  END LOOP;
  INSERT INTO orders VALUES (the_order, buyer, now(), total, 'PENDING');
  INSERT INTO cc_xacts VALUES (the_order, 'VISA', '4111111111111111', total, now());
  DELETE FROM shopping_cart_line WHERE scl_sc_id = cart;
  RETURN the_order;
END $$;
