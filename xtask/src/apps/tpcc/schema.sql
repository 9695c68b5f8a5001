-- TPC-C's nine tables, its population (clause 4.3) with plainer texts, and its five transactions as functions.
-- psql variable: warehouses.

CREATE TABLE warehouse (w_id int PRIMARY KEY, w_name text, w_street text, w_city text, w_state text, w_zip text,
  w_tax numeric(4,4), w_ytd numeric(12,2)) WITH (fillfactor = 50);
CREATE TABLE district (d_w_id int, d_id int, d_name text, d_street text, d_city text, d_state text, d_zip text,
  d_tax numeric(4,4), d_ytd numeric(12,2), d_next_o_id int) WITH (fillfactor = 50);
CREATE TABLE customer (c_w_id int, c_d_id int, c_id int, c_last text, c_first text, c_street text, c_city text,
  c_zip text, c_phone text, c_since timestamptz, c_credit text, c_credit_lim numeric(12,2), c_discount numeric(4,4),
  c_balance numeric(12,2), c_ytd_payment numeric(12,2), c_payment_cnt int, c_delivery_cnt int, c_data text);
CREATE TABLE history (h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamptz,
  h_amount numeric(6,2), h_data text);
CREATE TABLE orders (o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d timestamptz, o_carrier_id int,
  o_ol_cnt int, o_all_local int);
CREATE TABLE new_order (no_w_id int, no_d_id int, no_o_id int);
CREATE TABLE order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_supply_w_id int,
  ol_delivery_d timestamptz, ol_quantity int, ol_amount numeric(6,2), ol_dist_info text);
CREATE TABLE item (i_id int, i_im_id int, i_name text, i_price numeric(5,2), i_data text);
CREATE TABLE stock (s_w_id int, s_i_id int, s_quantity int, s_dists text[], s_ytd int, s_order_cnt int,
  s_remote_cnt int, s_data text);

-- The last names of clause 4.3.2.3.
CREATE FUNCTION last_name(n int) RETURNS text IMMUTABLE LANGUAGE sql AS $$
  SELECT s[n / 100 + 1] || s[n / 10 % 10 + 1] || s[n % 10 + 1]
  FROM (SELECT '{BAR,OUGHT,ABLE,PRI,PRES,ESE,ANTI,CALLY,ATION,EING}'::text[] AS s) names $$;
CREATE FUNCTION text_of(n int, length int) RETURNS text IMMUTABLE LANGUAGE sql AS $$
  SELECT left(repeat(md5(n::text), length / 32 + 1), length) $$;

INSERT INTO warehouse SELECT w, 'w' || w, text_of(w, 20), text_of(w, 15), 'CA', '123411111', 0.1, 300000
  FROM generate_series(1, :warehouses) w;
INSERT INTO district SELECT w, d, 'd' || d, text_of(d, 20), text_of(d, 15), 'CA', '123411111', 0.1, 30000, 3001
  FROM generate_series(1, :warehouses) w, generate_series(1, 10) d;
INSERT INTO item SELECT i, i % 10000, text_of(i, 20), 1 + i % 9900 / 100.0, text_of(i, 38)
  FROM generate_series(1, 100000) i;
INSERT INTO stock SELECT w, i, 10 + i % 91, (SELECT array_agg(text_of(i + d, 24)) FROM generate_series(1, 10) d),
  0, 0, 0, text_of(i, 38) FROM generate_series(1, :warehouses) w, generate_series(1, 100000) i;
INSERT INTO customer SELECT w, d, c, last_name(CASE WHEN c <= 1000 THEN c - 1 ELSE (c * 7919) % 1000 END),
  text_of(c, 12), text_of(c, 20), text_of(d, 15), '123411111', '0123456789012345', now(),
  CASE WHEN c % 10 = 0 THEN 'BC' ELSE 'GC' END, 50000, c % 5000 / 10000.0, -10, 10, 1, 0, text_of(c, 400)
  FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) c;
INSERT INTO history SELECT c, d, w, d, w, now(), 10, text_of(c, 18)
  FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) c;
INSERT INTO orders SELECT w, d, o, (o::bigint * 7919 % 3000 + 1)::int, now(),
  CASE WHEN o < 2101 THEN 1 + o % 10 END, 5 + o % 11, 1
  FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) o;
INSERT INTO new_order SELECT w, d, o
  FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(2101, 3000) o;
INSERT INTO order_line SELECT w, d, o, n, (o * 31 + n * 7919 + d * 13) % 100000 + 1, w,
  CASE WHEN o < 2101 THEN now() END, 5, CASE WHEN o < 2101 THEN 0 ELSE 1 + o % 9999 / 100.0 END, text_of(o, 24)
  FROM generate_series(1, :warehouses) w, generate_series(1, 10) d, generate_series(1, 3000) o,
  generate_series(1, 5 + o % 11) n;

ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id);
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
CREATE INDEX ON customer (c_w_id, c_d_id, c_last, c_first);
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id);
CREATE INDEX ON orders (o_w_id, o_d_id, o_c_id, o_id);
ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id);
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
ALTER TABLE item ADD PRIMARY KEY (i_id);
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id);

-- NURand of clause 2.1.6, with the constant 123.
CREATE FUNCTION nurand(a int, x int, y int) RETURNS int LANGUAGE sql AS $$
  SELECT ((floor(random() * (a + 1))::int | (x + floor(random() * (y - x + 1))::int)) + 123) % (y - x + 1) + x $$;

-- Clause 2.4. Items are taken in order, so that two orders cannot wait for each other. Returns the order's number.
CREATE FUNCTION new_order(w int, d int, c int, lines int, warehouses int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  the_order int; price numeric; line int := 0; supplier int; picked record; dist text;
BEGIN
  PERFORM c_discount, c_last, c_credit, w_tax FROM customer, warehouse
    WHERE w_id = w AND c_w_id = w AND c_d_id = d AND c_id = c;
  UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d
    RETURNING d_next_o_id - 1 INTO the_order;
  INSERT INTO orders VALUES (w, d, the_order, c, now(), NULL, lines, 1);
  INSERT INTO new_order VALUES (w, d, the_order);
  FOR picked IN
    SELECT i, CASE WHEN random() < 0.01 AND warehouses > 1 THEN 1 + (w % warehouses) ELSE w END AS s
    FROM (SELECT nurand(8191, 1, 100000) AS i FROM generate_series(1, lines)) drawn ORDER BY 2, 1
  LOOP
    line := line + 1;
    supplier := picked.s;
    SELECT i_price INTO price FROM item WHERE i_id = picked.i;
    UPDATE stock SET s_quantity = CASE WHEN s_quantity >= 15 THEN s_quantity - 5 ELSE s_quantity + 86 END,
      s_ytd = s_ytd + 5, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + (supplier <> w)::int
      WHERE s_w_id = supplier AND s_i_id = picked.i RETURNING s_dists[d] INTO dist;
    INSERT INTO order_line VALUES (w, d, the_order, line, picked.i, supplier, NULL, 5, 5 * price, dist);
  END LOOP;
  RETURN the_order;
END $$;

-- The customer by number, or the one in the middle of those with a last name.
CREATE FUNCTION customer_of(w int, d int, c int, by_name boolean) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  found int[]; wanted text := last_name(nurand(255, 0, 999));
BEGIN
  IF NOT by_name THEN RETURN c; END IF;
  SELECT array_agg(c_id ORDER BY c_first) INTO found FROM customer
    WHERE c_w_id = w AND c_d_id = d AND c_last = wanted;
  RETURN coalesce(found[(array_length(found, 1) + 1) / 2], c);
END $$;

-- Clause 2.5.
CREATE FUNCTION payment(w int, d int, cw int, cd int, c int, by_name boolean, amount numeric) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  payer int := customer_of(cw, cd, c, by_name);
BEGIN
  UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w;
  UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
  UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount,
    c_payment_cnt = c_payment_cnt + 1,
    c_data = CASE c_credit WHEN 'BC' THEN left(concat_ws(' ', payer, cd, cw, d, w, amount) || c_data, 500) ELSE c_data END
    WHERE c_w_id = cw AND c_d_id = cd AND c_id = payer;
  INSERT INTO history VALUES (payer, cd, cw, d, w, now(), amount, 'w    d');
END $$;

-- Clause 2.6. The customer is found once, in a query of its own, not for each row.
CREATE FUNCTION order_status(w int, d int, c int, by_name boolean) RETURNS bigint LANGUAGE sql AS $$
  WITH last AS (
    SELECT o_id FROM customer JOIN orders ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
    WHERE c_w_id = w AND c_d_id = d AND c_id = (SELECT customer_of(w, d, c, by_name)) ORDER BY o_id DESC LIMIT 1)
  SELECT sum(ol_quantity) FROM last JOIN order_line ON ol_o_id = last.o_id WHERE ol_w_id = w AND ol_d_id = d $$;

-- Clause 2.7, at once instead of from a queue.
CREATE FUNCTION delivery(w int, carrier int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  oldest int; payer int; total numeric;
BEGIN
  FOR d IN 1..10 LOOP
    DELETE FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id =
      (SELECT no_o_id FROM new_order WHERE no_w_id = w AND no_d_id = d ORDER BY no_o_id LIMIT 1 FOR UPDATE SKIP LOCKED)
      RETURNING no_o_id INTO oldest;
    CONTINUE WHEN oldest IS NULL;
    UPDATE orders SET o_carrier_id = carrier WHERE o_w_id = w AND o_d_id = d AND o_id = oldest
      RETURNING o_c_id INTO payer;
    UPDATE order_line SET ol_delivery_d = now() WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = oldest;
    SELECT sum(ol_amount) INTO total FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = oldest;
    UPDATE customer SET c_balance = c_balance + total, c_delivery_cnt = c_delivery_cnt + 1
      WHERE c_w_id = w AND c_d_id = d AND c_id = payer;
  END LOOP;
END $$;

-- Clause 2.8.
CREATE FUNCTION stock_level(w int, d int, threshold int) RETURNS bigint LANGUAGE sql AS $$
  SELECT count(DISTINCT s_i_id) FROM district
  JOIN order_line ON ol_w_id = d_w_id AND ol_d_id = d_id AND ol_o_id BETWEEN d_next_o_id - 20 AND d_next_o_id - 1
  JOIN stock ON s_w_id = w AND s_i_id = ol_i_id AND s_quantity < threshold
  WHERE d_w_id = w AND d_id = d $$;
