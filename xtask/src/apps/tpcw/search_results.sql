\set kind random(1, 3)
\set n random(1, :items)
\if :kind = 1
SELECT i_id, i_title, a_lname FROM author JOIN item ON i_a_id = a_id
  WHERE a_lname LIKE left(md5(:n::text), 3) || '%' ORDER BY i_title LIMIT 50;
\elif :kind = 2
SELECT i_id, i_title, a_lname FROM item JOIN author ON a_id = i_a_id
  WHERE i_title LIKE left(md5(:n::text), 3) || '%' ORDER BY i_title LIMIT 50;
\else
SELECT i_id, i_title, a_lname FROM item JOIN author ON a_id = i_a_id
  WHERE i_subject = :n % 24 ORDER BY i_pub_date DESC LIMIT 50;
\endif
