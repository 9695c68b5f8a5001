\set w random(1, :warehouses)
\set d random(1, 10)
\set c 1 + ((random(0, 1023) | random(1, 3000)) + 123) % 3000
\set named random(1, 100) <= 60
SELECT order_status(:w, :d, :c, :named);
