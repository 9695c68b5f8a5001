\set c random(1, :customers)
SELECT c_uname, c_fname, c_lname FROM customer WHERE c_uname = 'u' || :c;
