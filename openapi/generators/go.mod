module generated

go 1.19
