"""Sites with tenants, served by real servers: no call may answer with another tenant's rows.

`python -m tests.sites.tenants` prints how many of 400 calls did, for each site, mount and function.
"""
