-- The changes of a table of products, for MySQL, PostgreSQL and SQLite. expected.changelog has the effect of these 22 statements, row by row.
-- A reader of that changelog must arrive at the table that the database has.

CREATE TABLE product (
  id INT NOT NULL PRIMARY KEY,
  name VARCHAR(64) NOT NULL,
  description VARCHAR(255),
  weight DECIMAL(10,3)
);

-- Nine products.
INSERT INTO product VALUES (101, 'scooter', 'Small 2-wheel scooter', 3.140);
INSERT INTO product VALUES (102, 'car battery', '12V car battery', 8.100);
INSERT INTO product VALUES (103, '12-pack drill bits', 'Twelve drill bits from #40 to #3', 0.800);
INSERT INTO product VALUES (104, 'hammer', 'Hammer of 12 oz for carpenters', 0.750);
INSERT INTO product VALUES (105, 'hammer', 'Hammer of 14 oz for carpenters', 0.875);
INSERT INTO product VALUES (106, 'hammer', 'Hammer of 16 oz for carpenters', 1.000);
INSERT INTO product VALUES (107, 'rocks', 'A box of assorted rocks', 5.300);
INSERT INTO product VALUES (108, 'jacket', 'Black wind breaker, keeps water out', 0.100);
INSERT INTO product VALUES (109, 'spare tire', '24 inch spare tire', 22.200);

-- Corrections, and two products in one statement.
UPDATE product SET description = 'Hammer of 18 oz for carpenters' WHERE id = 106;
UPDATE product SET weight = 5.100 WHERE id = 107;
INSERT INTO product VALUES (110, 'jacket', 'White wind breaker, keeps water out', 0.200), (111, 'scooter', 'Big 2-wheel scooter', 5.180);
UPDATE product SET description = 'New white wind breaker, keeps water out', weight = 0.500 WHERE id = 110;
UPDATE product SET weight = 5.170 WHERE id = 111;
DELETE FROM product WHERE id = 111;

-- Several rows in one statement.
UPDATE product SET weight = weight * 2 WHERE id IN (101, 102);
DELETE FROM product WHERE id IN (102, 103);

-- A row that moves from one group to another, a value that is set to NULL and then set again, a row that is inserted again after its delete.
UPDATE product SET name = 'spare wheel' WHERE id = 109;
UPDATE product SET description = NULL WHERE id = 108;
UPDATE product SET description = 'Black wind breaker, second hand' WHERE id = 108;
INSERT INTO product VALUES (103, '12-pack drill bits', 'Twelve drill bits, boxed', 0.820);
DELETE FROM product WHERE id = 105;
