"""Three hundred tools of fifteen servers that do not exist, as such servers describe theirs: the catalog that
`queries.py` is asked of. One line a tool: its name there, what it says of itself, its parameters."""

from __future__ import annotations

from typing import Any, Final

from golem_forge.tools.tool import Remote, Tool

_SERVERS: Final[dict[str, str]] = {
    "calendar": """
create_event | Create an event in a calendar, with attendees and a reminder | title start end attendees location
update_event | Change the time, title or place of an event | event_id title start end
delete_event | Delete an event and notify its attendees | event_id notify
get_event | Get one event with its attendees and their answers | event_id
list_events | List the events of a calendar between two dates | calendar_id start end limit
search_events | Search events by words in their title or notes | query start end
respond_to_invitation | Accept, decline or tentatively accept an invitation | event_id response comment
find_free_slots | Find times when all given people are free for a meeting | attendees duration start end
create_calendar | Create a new calendar | name color timezone
delete_calendar | Delete a calendar with everything in it | calendar_id
list_calendars | List the calendars of the account | limit
share_calendar | Share a calendar with another person | calendar_id email role
unshare_calendar | Stop sharing a calendar with a person | calendar_id email
set_working_hours | Set the working hours that others see | days start end
get_working_hours | Get somebody's working hours and time zone | email
set_out_of_office | Set an out-of-office period that declines meetings | start end message
add_reminder | Add a reminder to an event | event_id minutes
book_room | Book a meeting room for an event | event_id room
list_rooms | List meeting rooms with their capacity and equipment | building capacity
export_calendar | Export a calendar as an ICS file | calendar_id path
""",
    "mail": """
send_email | Send an email to one or more recipients | to subject body attachments
reply_to_email | Reply to the sender of an email, or to all | message_id body
forward_email | Forward an email to somebody else | message_id to comment
list_emails | List the emails of a folder, newest first | folder limit cursor
search_emails | Search the mailbox by sender, subject, words or date | query start end limit
read_email | Read one email with its headers and text | message_id
delete_email | Move an email to the trash | message_id
archive_email | Archive an email so that it leaves the inbox | message_id
mark_as_read | Mark emails as read or unread | message_id read
mark_as_spam | Report an email as spam | message_id
create_draft | Save a draft of an email without sending it | to subject body
update_draft | Change a saved draft | draft_id subject body
send_draft | Send a saved draft | draft_id
list_folders | List the folders and labels of the mailbox | limit
create_folder | Create a mail folder | name
move_email | Move an email into another folder | message_id folder
add_label | Put a label on an email | message_id label
download_attachment | Download an attachment of an email | message_id attachment_id path
create_filter | Create a filter rule for incoming mail | query action
set_signature | Set the signature under outgoing mail | body
""",
    "tracker": """
create_ticket | Open a new ticket in a project | project title body priority
update_ticket | Change fields of a ticket | ticket_id title body priority
close_ticket | Close a ticket as resolved or rejected | ticket_id resolution
reopen_ticket | Reopen a closed ticket | ticket_id comment
get_ticket | Get a ticket with its history | ticket_id
list_tickets | List tickets of a project by status | project status limit
search_tickets | Search tickets with a query over all fields | query limit
assign_ticket | Assign a ticket to a person | ticket_id assignee
add_comment | Add a comment to a ticket | ticket_id body
list_comments | List the comments of a ticket | ticket_id limit
link_tickets | Link two tickets: blocks, duplicates, relates to | ticket_id other_id kind
set_priority | Set how urgent a ticket is | ticket_id priority
log_work | Log the time that was spent on a ticket | ticket_id minutes comment
create_sprint | Create a sprint with a goal and dates | project name start end
start_sprint | Start a planned sprint | sprint_id
complete_sprint | Complete the running sprint and move what is left | sprint_id
list_sprints | List the sprints of a board | project limit
move_to_sprint | Move tickets from the backlog into a sprint | ticket_id sprint_id
create_epic | Create an epic that groups tickets | project title body
burndown_chart | Get the burndown of a sprint as numbers per day | sprint_id
""",
    "forgehub": """
create_repository | Create a source code repository | name visibility description
fork_repository | Fork a repository into another account | repo owner
delete_repository | Delete a repository for good | repo
search_repositories | Search repositories by name, language or topic | query language limit
create_branch | Create a branch from a commit | repo branch sha
delete_branch | Delete a branch | repo branch
list_branches | List the branches of a repository | repo limit
protect_branch | Require reviews and passing checks before merging into a branch | repo branch
list_commits | List the commits of a branch | repo branch limit
get_commit | Get a commit with its diff | repo sha
create_pull_request | Open a pull request from one branch to another | repo title body branch base
merge_pull_request | Merge a pull request | repo number method
list_pull_requests | List the pull requests of a repository | repo status limit
review_pull_request | Approve a pull request or ask for changes | repo number verdict body
create_issue | Report a bug or wish as an issue of a repository | repo title body labels
list_issues | List the issues of a repository | repo status limit
comment_on_issue | Comment on an issue or a pull request | repo number body
search_code | Search source code across repositories | query repo language
create_release | Publish a release with notes and files for a tag | repo tag title body
get_file_contents | Get the contents of a file in a repository at a revision | repo path sha
""",
    "storage": """
upload_object | Upload a file to a bucket | bucket key path
download_object | Download an object from a bucket to a file | bucket key path
delete_object | Delete an object from a bucket | bucket key
copy_object | Copy an object to another key or bucket | bucket key target
list_objects | List the objects of a bucket under a prefix | bucket prefix limit
get_object_metadata | Get the size, type and checksum of an object | bucket key
set_object_tags | Put tags on an object | bucket key tags
create_bucket | Create a bucket in a region | bucket region
delete_bucket | Delete an empty bucket | bucket
list_buckets | List all buckets of the account | limit
presign_url | Make a temporary link by which anybody can download an object | bucket key minutes
set_lifecycle_rule | Expire or move objects to cold storage after some days | bucket prefix days
enable_versioning | Keep old versions of every object of a bucket | bucket
list_object_versions | List the versions of an object | bucket key
restore_object | Restore an object from the archive or an older version | bucket key version
set_bucket_policy | Set who may read or write a bucket | bucket policy
get_bucket_policy | Get the access policy of a bucket | bucket
bucket_usage | Report how many bytes and objects a bucket holds | bucket
empty_bucket | Delete every object of a bucket | bucket
sync_folder | Synchronise a local folder with a prefix of a bucket | path bucket prefix
""",
    "billing": """
create_invoice | Create an invoice for a customer | customer_id lines due
send_invoice | Send an invoice to the customer by mail | invoice_id
void_invoice | Void an invoice that was issued by mistake | invoice_id reason
list_invoices | List invoices by customer and status | customer_id status limit
get_invoice | Get an invoice with its lines and payments | invoice_id
download_invoice_pdf | Download an invoice as PDF | invoice_id path
record_payment | Record a payment that was received | invoice_id amount currency
refund_payment | Refund a payment in full or in part | payment_id amount reason
list_payments | List payments of a period | start end limit
create_subscription | Subscribe a customer to a plan | customer_id plan
cancel_subscription | Cancel a subscription now or at the end of the period | subscription_id when
change_plan | Move a subscription to another plan, with proration | subscription_id plan
pause_subscription | Pause a subscription without losing it | subscription_id
list_subscriptions | List subscriptions by plan or status | plan status limit
create_coupon | Create a coupon code with a discount | code percent
apply_coupon | Apply a coupon to a subscription or invoice | subscription_id code
create_price_plan | Create a plan with a price per month or year | name amount currency interval
tax_report | Report the tax collected per country for a quarter | quarter
revenue_report | Report monthly recurring revenue and churn | start end
retry_failed_payment | Charge the card again after a payment failed | payment_id
""",
    "crm": """
create_contact | Add a person to the address book | name email phone company
update_contact | Change what is known about a contact | contact_id email phone
delete_contact | Delete a contact and their data | contact_id
get_contact | Get a contact with their history | contact_id
search_contacts | Find contacts by name, company or email | query limit
merge_contacts | Merge two duplicate contacts into one | contact_id other_id
create_company | Add a company account | name domain industry
get_company | Get a company with its people and deals | company_id
list_companies | List companies by industry or owner | industry limit
create_deal | Create a sales opportunity with an amount | title company_id amount
update_deal | Change the amount or closing date of a deal | deal_id amount due
move_deal_stage | Move a deal to another stage of the pipeline | deal_id stage
list_deals | List the deals of a pipeline stage | stage owner limit
close_deal | Close a deal as won or lost | deal_id result reason
log_call | Log a phone call with a contact | contact_id body minutes
log_meeting | Log a meeting with a contact and its notes | contact_id body start
create_task | Create a follow-up task for a sales person | title due assignee
pipeline_report | Report how much is in each stage of the sales pipeline | owner
import_contacts | Import contacts from a CSV file | path
assign_owner | Make somebody the owner of a contact or company | contact_id owner
""",
    "chat": """
post_message | Post a message to a channel | channel text
send_direct_message | Send a private message to a person | user text
reply_in_thread | Reply to a message in its thread | channel message_id text
update_message | Edit a message that was posted | channel message_id text
delete_message | Delete a message from a channel | channel message_id
add_reaction | React to a message with an emoji | channel message_id emoji
list_channels | List the channels of the workspace | limit cursor
create_channel | Create a channel, public or private | name visibility
archive_channel | Archive a channel that is no longer used | channel
join_channel | Join a public channel | channel
invite_to_channel | Invite people to a channel | channel user
set_channel_topic | Set the topic of a channel | channel text
channel_history | Read the latest messages of a channel | channel limit
search_messages | Search messages in all channels | query limit
pin_message | Pin a message to the top of a channel | channel message_id
list_users | List the members of the workspace | limit cursor
get_user_profile | Get the profile of a member: name, title, time zone | user
set_status | Set your own status text and emoji | text emoji
upload_file | Share a file in a channel | channel path comment
schedule_message | Schedule a message to be posted later | channel text when
""",
    "docs": """
create_document | Create a text document in a folder | title body folder
get_document | Read the text of a document | document_id
update_document | Replace or append text of a document | document_id body
delete_document | Move a document to the bin | document_id
search_documents | Full-text search in all documents | query limit
list_documents | List the documents of a folder | folder limit
share_document | Give a person access to a document | document_id email role
export_document_pdf | Export a document as PDF | document_id path
comment_on_document | Leave a comment at a passage | document_id text body
resolve_comment | Resolve a comment thread of a document | document_id comment_id
document_history | List the revisions of a document and who made them | document_id limit
restore_revision | Go back to an earlier revision of a document | document_id version
create_spreadsheet | Create a spreadsheet | title folder
read_cells | Read a range of cells from a spreadsheet | spreadsheet_id range
write_cells | Write values into a range of cells | spreadsheet_id range values
append_row | Append a row to the end of a sheet | spreadsheet_id values
add_sheet | Add a sheet to a spreadsheet | spreadsheet_id name
create_presentation | Create a slide deck | title folder
add_slide | Add a slide to a presentation | presentation_id title body
translate_document | Translate a document into another language | document_id language
""",
    "database": """
run_query | Run a read-only SQL query and get its rows | sql limit
execute_statement | Run SQL that changes data or schema | sql
explain_query | Explain how the database would run a query | sql
list_tables | List the tables of a schema | schema
describe_table | Describe the columns, types and indexes of a table | table
create_table | Create a table with its columns | table columns
drop_table | Drop a table and its rows | table
add_column | Add a column to a table | table column type
create_index | Create an index to make queries faster | table columns
drop_index | Drop an index | index
insert_rows | Insert rows into a table | table values
update_rows | Update the rows that match a condition | table values condition
delete_rows | Delete the rows that match a condition | table condition
list_schemas | List the schemas of the database | limit
create_backup | Make a backup of the database | name
restore_backup | Restore the database from a backup | backup_id
list_backups | List backups with their dates and sizes | limit
slow_queries | List the slowest queries of the last hours | hours limit
create_db_user | Create a database user with a role | user role
kill_session | End a database session that blocks others | session_id
""",
    "cluster": """
list_pods | List the pods of a namespace with their state | namespace limit
get_pod_logs | Get the log lines of a container in a pod | namespace pod lines
delete_pod | Delete a pod so that it is started anew | namespace pod
exec_in_pod | Run a command inside a container | namespace pod command
list_deployments | List the deployments of a namespace | namespace
scale_deployment | Change how many replicas a deployment has | namespace deployment replicas
rollout_restart | Restart the pods of a deployment one by one | namespace deployment
rollback_deployment | Roll a deployment back to its previous version | namespace deployment
set_image | Deploy another container image | namespace deployment image
apply_manifest | Apply a YAML manifest to the cluster | yaml
delete_resource | Delete a resource of any kind by name | namespace kind name
list_nodes | List the nodes with their load and conditions | limit
drain_node | Move all pods off a node before maintenance | node
cordon_node | Keep new pods from being placed on a node | node
create_namespace | Create a namespace with quotas | namespace
create_secret | Store a secret for pods to read | namespace name values
create_config_map | Store configuration files for pods | namespace name values
list_services | List services and their addresses | namespace
port_forward | Forward a local port to a pod | namespace pod port
cluster_events | List warnings and other happenings of the cluster | namespace limit
""",
    "monitoring": """
query_metrics | Query time series with an expression | expression start end
list_metrics | List the names of the metrics that are collected | prefix limit
create_alert | Create an alert that fires when a metric crosses a threshold | name expression threshold
update_alert | Change the threshold or recipients of an alert | alert_id threshold
delete_alert | Delete an alert rule | alert_id
list_alerts | List alert rules and which of them fire now | status limit
silence_alert | Silence an alert for some hours | alert_id hours reason
acknowledge_incident | Acknowledge an incident, so that nobody else is paged | incident_id
resolve_incident | Resolve an incident with a summary | incident_id summary
list_incidents | List open incidents by severity | severity status
page_on_call | Page whoever is on call for a team | team text
who_is_on_call | Tell who is on call for a team, now or at a time | team when
override_on_call | Swap an on-call shift between two people | team user start end
create_dashboard | Create a dashboard of charts | title panels
get_dashboard | Get the charts of a dashboard | dashboard_id
search_logs | Search application logs by words, level and time | query level start end
tail_logs | Follow the newest log lines of an application | application level
trace_request | Show where a slow request spent its time, by trace id | trace_id
uptime_check | Check whether a website answers, from several regions | url
error_rate | Report the rate of failed requests of an application | application start end
""",
    "travel": """
search_flights | Search flights between two airports on a date | origin destination date passengers
book_flight | Book a flight for passengers | offer_id passengers
cancel_flight | Cancel a flight booking and ask for the fare back | booking_id
check_in_flight | Check in to a flight and get boarding passes | booking_id seat
flight_status | Tell whether a flight is on time, delayed or cancelled | flight date
search_hotels | Search hotels in a city with prices per night | city checkin checkout guests
book_hotel | Book a hotel room | offer_id guests
cancel_hotel | Cancel a hotel reservation | booking_id
search_trains | Search train connections between stations | origin destination date
book_train | Buy train tickets | offer_id passengers
rent_car | Rent a car at a place for some days | city start end class
cancel_car_rental | Cancel a car rental | booking_id
search_restaurants | Find restaurants near a place by cuisine | city cuisine limit
reserve_table | Reserve a table at a restaurant | restaurant guests when
get_itinerary | Get all bookings of a trip in order | trip_id
create_trip | Create a trip that bookings belong to | name start end
weather_forecast | Get the weather forecast of a place for some days | city days
currency_exchange | Convert an amount between currencies at today's rate | amount currency target
visa_requirements | Tell which visa a citizen needs for a country | nationality country
travel_expenses | Sum up what a trip has cost so far | trip_id
""",
    "people": """
get_employee | Get the record of an employee | employee_id
search_employees | Search the staff directory by name, team or skill | query limit
org_chart | Show who reports to whom | employee_id depth
request_time_off | Request vacation or other leave | start end kind comment
approve_time_off | Approve or reject a leave request of your team | request_id verdict
time_off_balance | Tell how many vacation days somebody has left | employee_id
list_absences | List who is absent in a period | team start end
submit_expense | Submit an expense with a receipt to be paid back | amount currency path comment
approve_expense | Approve an expense report | expense_id
list_expenses | List expense reports by status | status limit
clock_in | Start recording working time | comment
clock_out | Stop recording working time | comment
get_timesheet | Get the recorded hours of a month | employee_id month
get_payslip | Download a payslip | employee_id month
open_position | Open a job position for recruiting | title team body
list_candidates | List the applicants of a position | position_id stage
schedule_interview | Schedule an interview with an applicant | candidate_id attendees start
write_review | Write a performance review of an employee | employee_id body
onboard_employee | Start the onboarding of a new hire: accounts, laptop, training | name email start
offboard_employee | Start the offboarding of somebody who leaves | employee_id end
""",
    "shop": """
create_product | Add a product to the catalogue | title price description
update_product | Change the price, text or pictures of a product | product_id price description
delete_product | Remove a product from the catalogue | product_id
search_products | Search the catalogue of products | query limit
set_stock | Set how many pieces of a product are in stock | product_id quantity warehouse
get_stock | Tell how many pieces are left in each warehouse | product_id
list_low_stock | List products that will soon be sold out | threshold
list_orders | List orders by status and date | status start end
get_order | Get an order with its items and address | order_id
cancel_order | Cancel an order that was not shipped yet | order_id reason
ship_order | Mark an order as shipped with a tracking number | order_id carrier tracking
track_parcel | Tell where a parcel is by its tracking number | tracking
create_return | Register goods that a buyer sends back | order_id items reason
refund_order | Pay an order back to the buyer | order_id amount
create_discount | Create a discount for products or categories | code percent start end
list_reviews | List what buyers wrote about a product | product_id limit
answer_review | Answer a review in the name of the shop | review_id text
update_shipping_rates | Set what shipping costs per country and weight | country rates
sales_report | Report sales per day and product | start end
abandoned_carts | List carts that were filled and never paid | start limit
""",
}

_PARAMETERS: Final = {
    "amount": "The amount, in the currency's unit",
    "assignee": "Who is to do it",
    "attendees": "Email addresses of the people who take part",
    "body": "The text, Markdown is allowed",
    "bucket": "The bucket's name",
    "calendar_id": "The id of the calendar",
    "channel": "The channel's name or id",
    "city": "The city",
    "comment": "What others should know",
    "currency": "Three letters, EUR or USD",
    "cursor": "Where the last page ended",
    "customer_id": "The id of the customer",
    "document_id": "The id of the document",
    "due": "The date when it is due",
    "email": "An email address",
    "end": "The end, as an ISO date or time",
    "event_id": "The id of the event",
    "folder": "The folder's name",
    "key": "The object's key",
    "limit": "How many at most",
    "message_id": "The id of the message",
    "namespace": "The namespace",
    "path": "Where the file is or will be",
    "project": "The project's key",
    "query": "Words to look for",
    "reason": "Why",
    "repo": "The repository, as owner/name",
    "start": "The beginning, as an ISO date or time",
    "status": "Only those with this status",
    "text": "The text",
    "ticket_id": "The key of the ticket",
    "title": "The title",
}
_NUMBERS: Final = frozenset({"limit", "minutes", "hours", "days", "replicas", "quantity", "percent", "threshold"})


def catalog300() -> list[Tool]:
    return [
        server_tool(server, *(part.strip() for part in line.split("|")))
        for server, lines in _SERVERS.items()
        for line in lines.strip().splitlines()
    ]


def server_tool(server: str, name: str, description: str, parameters: str = "") -> Tool:
    schema = {"type": "object", "properties": {each: _property(each) for each in parameters.split()}}
    return Tool(
        f"{server}__{name}",
        f"{description}.",
        input_schema=schema,
        execute=lambda args: f"{name} was called",
        source="mcp",
        remote=Remote(server, name),
    )


def _property(name: str) -> dict[str, Any]:
    said = _PARAMETERS.get(name, f"The {name.replace('_', ' ')}")
    return {"type": "integer" if name in _NUMBERS else "string", "description": said}
