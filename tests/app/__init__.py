"""Tests of the app room: each page's logic, without a browser."""
