\set subject random(0, 23)
SELECT best_sellers(:subject);
