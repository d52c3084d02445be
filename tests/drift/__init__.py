"""Tests of the watch on newer releases, without installing any."""
