\set c random(1, :customers)
\set cart random(1, 1000)
\set i random(1, :items)
SELECT buy(:cart, :c, :i);
