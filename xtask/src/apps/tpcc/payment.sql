\set w random(1, :warehouses)
\set d random(1, 10)
\set cw CASE WHEN random(1, 100) <= 85 THEN :w ELSE random(1, :warehouses) END
\set cd random(1, 10)
\set c 1 + ((random(0, 1023) | random(1, 3000)) + 123) % 3000
\set named random(1, 100) <= 60
\set amount random(100, 500000)
SELECT payment(:w, :d, :cw, :cd, :c, :named, :amount / 100.0);
