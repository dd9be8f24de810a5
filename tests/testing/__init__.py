"""The room that puts a broker into the tests of others."""
