"""What several test folders need: daemons, raw clients, proxies."""
