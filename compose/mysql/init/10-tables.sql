-- A small shop. Run once, when the volume is empty.
CREATE DATABASE inventory CHARACTER SET utf8mb4;
USE inventory;

CREATE TABLE products (
  id INT NOT NULL PRIMARY KEY,
  name VARCHAR(255) NOT NULL,
  description VARCHAR(512),
  weight DECIMAL(10, 3)
);

INSERT INTO products VALUES
  (101, 'scooter', 'small, with two wheels', 3.140),
  (102, 'car battery', '12 V', 8.100),
  (103, 'drill bits', 'twelve, from 3 to 10 mm', 0.800),
  (104, 'hammer', 'for nails', 0.750),
  (105, 'hammer', 'for walls', 0.875),
  (106, 'hammer', 'for pegs, of rubber', 1.000),
  (107, 'rocks', NULL, 5.300),
  (108, 'jacket', 'keeps the rain out', 0.100),
  (109, 'spare tire', '24 inches', 22.200);

CREATE TABLE customers (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name VARCHAR(255) NOT NULL,
  email VARCHAR(255) NOT NULL UNIQUE,
  updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)
) AUTO_INCREMENT = 1001;

INSERT INTO customers (name, email) VALUES
  ('Sally', 'sally@example.com'),
  ('Yusuf', 'yusuf@example.com'),
  ('Zoë', 'zoe@example.com');
