CREATE MATERIALIZED VIEW revenue AS
SELECT product, count(*) AS orders, sum(amount) AS amount
FROM orders
GROUP BY product
