"""One file per engine. Each defines `ENGINE`, a class that follows `contract.Engine`."""
