\set w random(1, :warehouses)
\set d random(1, 10)
\set threshold random(10, 20)
SELECT stock_level(:w, :d, :threshold);
