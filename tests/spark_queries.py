"""Queries that Spark takes, written so as to mislead whoever looks at them without a parser.

All read ``source`` or ``customers`` only, or what is qualified.
"""

QUERIES = (
    "SELECT * FROM source",
    "select value from SOURCE;",
    "FROM source |> WHERE partition > 1 |> SELECT value",
    "TABLE source",
    "VALUES (1, 'FROM nowhere')",
    "(SELECT 1) UNION ALL (SELECT 2)",
    "SELECT `it's` FROM (SELECT 1 AS `it's`)",
    "SELECT `a(b` FROM (SELECT 1 AS `a(b`) -- FROM nowhere (",
    r"""SELECT r'\' AS a, '\'' AS b, 'it''s' AS c, "--" AS d FROM source""",
    "/* FROM nowhere /* ' */ ( */ SELECT /*+ BROADCAST(c) */ 1 FROM source CROSS JOIN customers c",
    "SELECT trim(BOTH upper('x') FROM country), extract(HOUR FROM now()) FROM customers",
    "SELECT substring(concat(country, 'x') FROM 2), overlay('x' PLACING 'y' FROM 1) FROM customers",
    "SELECT 1 FROM source WHERE topic IS NOT DISTINCT FROM value OR offset IS DISTINCT FROM topic",
    "WITH a AS (SELECT 1 AS x), b(y) AS (SELECT x FROM a) SELECT * FROM b JOIN a ON x = y",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT n FROM t",
    "WITH `a` AS (SELECT 1) SELECT * FROM a",
    "SELECT * FROM range(10) JOIN LATERAL (SELECT id + 1) ON true",
    "SELECT x FROM source LATERAL VIEW explode(array(1, 2)) t AS x",
    "SELECT * FROM VALUES (1), (2) AS t(x)",
    "SELECT * FROM spark_catalog.default.elsewhere",
    "SELECT * FROM csv.`/nowhere/it's (here).csv`",
    "SELECT * FROM STREAM(source)",
    "SELECT (SELECT max(country) FROM customers), transform(array(1), x -> x + 1)[0] FROM source",
    "SELECT * FROM source WHERE EXISTS (SELECT 1 FROM customers c WHERE c.country = topic)",
    "SELECT topic, count(*) FROM source GROUP BY GROUPING SETS ((topic), ())",
    "SELECT * FROM (SELECT country FROM customers) PIVOT (count(*) FOR country IN ('a', 'b'))",
    "SELECT map('a', named_struct('from', 1))['a'].from AS `join` FROM source",
    "SELECT * FROM IDENTIFIER('sou' || 'rce')",
    "SELECT value:a.b FROM source",
    "SELECT DISTINCT value FROM source NATURAL LEFT JOIN customers",
)
