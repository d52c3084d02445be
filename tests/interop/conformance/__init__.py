"""What was compared with which system: records of the live tests, and the page generated from them."""
